"""TensorBoard's standard dashboards: event files, written without torch and without tensorboard."""
