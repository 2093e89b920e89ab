"""How facts are said: causes, advice, doubts, a cell's sentences, the words about anyone's traces."""
