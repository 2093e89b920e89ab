"""What the files of a run say: one frozen record for each, and for each part of a rank's."""
