"""Raw CUDA C++ kernels for the embedded engine, and their CuPy loader."""
