"""Shell scripts, read as far as what they do is determined. Nothing is run."""

from autoscout.commands.script.lexer import ScriptError
from autoscout.commands.script.run import Script, ScriptCommand, read_script
from autoscout.commands.script.words import Word, missing_in

__all__ = ["Script", "ScriptCommand", "ScriptError", "Word", "missing_in", "read_script"]
