"""Where traffic is read from: one module for each kind of file or server; a new kind is a new file here, named in `autoscout.traffic.read`.

A module for files has `TITLE`, `takes(text, first)` and `read(path, text, windows)`; one for servers has `TITLE`, `takes_address(source)`
and `fetch(source, over_s, clock)`.
"""
