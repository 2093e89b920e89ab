"""What people see: terminal text, Markdown, plots and TensorBoard event files, made from finished summaries."""
