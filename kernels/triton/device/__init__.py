"""What runs on the GPU: @triton.jit functions only, launched from the modules one level up.

Every shape is a constexpr, every tile a power of two with a mask. Nothing here depends on
the interpreter: `python -m kernels.triton.report` compiles all of it for a real target.
"""
