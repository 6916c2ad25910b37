"""AutoScout: which settings should I run this ML system with?"""

from __future__ import annotations

__version__ = "0.1.0"
