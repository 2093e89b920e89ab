"""From one file to many cells: named variations, and the product of axes."""
