"""What users ask of a server, as numbers without contents: lengths, rate, bursts, shared beginnings, sessions."""
