"""What takes most of a step, in C beside the plain PyTorch: ``door`` says where it serves."""
