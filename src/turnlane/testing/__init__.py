"""What Turnlane is tested with, for those who build on it: conformance, simulation, chaos, mutants and doubles."""
