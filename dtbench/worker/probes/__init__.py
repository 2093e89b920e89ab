"""The functions under study as a rank runs them: each wrapped, counted and named, and the lines of it that ran."""
