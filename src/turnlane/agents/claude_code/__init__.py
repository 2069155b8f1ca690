"""The agent that is Claude Code: the real program, driven by lines of JSON, its sessions in files of this machine."""
