"""What the kernels raise on purpose. `engine` turns them into its own errors.

KernelError       an argument that no kernel can serve, or a backend that is not there
└── BuildError    the C library could not be built or loaded
"""


class KernelError(Exception):
    """Its text is one line: what, where, what to do."""


class BuildError(KernelError):
    pass
