"""One measurement a file. Playbook steps and commands come in."""
