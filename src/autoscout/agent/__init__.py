"""What a coding agent may ask of AutoScout: the verbs of the program as tools of the Model Context Protocol."""
