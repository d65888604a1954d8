"""The paper's experiments: independent cells, a store of results, and a runner."""
