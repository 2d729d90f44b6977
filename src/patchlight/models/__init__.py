"""From a name, a file or a module to a `Subject`: a model with its preprocessing, label names and layout."""
