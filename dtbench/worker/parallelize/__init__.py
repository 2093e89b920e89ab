"""One file per strategy: model, mesh and settings in; the parallel model and how to read its knobs back out."""
