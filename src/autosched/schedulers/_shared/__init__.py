"""What the plug-ins of this folder share."""
