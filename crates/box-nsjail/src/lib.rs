//! Boxes around which nsjail puts namespaces and limits, with our agent as its child.
