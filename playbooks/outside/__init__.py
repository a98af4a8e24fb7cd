"""Steps against an engine at a URL: what its API and its metrics allow, one step a file. The
runner comes in through playbooks/steps/registry.py. No torch is needed."""
