"""The machine under a rank: which accelerator it computes on."""
