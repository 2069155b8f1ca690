"""What Turnlane is tested with, for those who build on it: conformance suite, simulation, mutants and doubles."""
