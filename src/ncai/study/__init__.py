"""The paper's experiments: independent cells, a store of what is done, and a runner."""
