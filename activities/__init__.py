"""Side effects, one class per collaborator."""
