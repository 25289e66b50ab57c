"""Studies made with the machine, a folder a paper: which runs, what is read off them, which figures."""
