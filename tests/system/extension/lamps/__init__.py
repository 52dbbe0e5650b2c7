"""An example package: an environment with its verifier, a gate, a judge and a training method for flywheel."""
