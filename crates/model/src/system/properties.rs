//! Properties of predictions under generated input.
