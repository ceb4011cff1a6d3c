"""The shared learning spine: records, drivers, targets, minibatches, learner state and checkpoints."""
