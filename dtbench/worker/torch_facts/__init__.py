"""What dtbench uses of torch: written down for each torch that it was tested with, held against the one that is here.

``used`` reads dtbench's own source for the names that it imports, wraps or reads, so there is no list to keep;
``describe`` says what torch has under these names; ``ranks`` runs two small ranks over gloo and says what torch then
writes into traces, sends, and has in its objects; ``look`` puts that together; ``compare`` needs no torch.
"""
