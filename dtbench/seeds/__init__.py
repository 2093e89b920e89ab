"""What dtbench exists to measure: every function of the files under study, as data that both wings read."""
