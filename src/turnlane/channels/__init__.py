"""Connections to chat platforms: parse what arrives, send what leaves."""
