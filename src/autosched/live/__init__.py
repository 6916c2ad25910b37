"""Live schedulers: one module or package each, behind the protocol of `protocol.py`."""
