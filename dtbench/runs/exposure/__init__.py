"""Exposed communication estimated several independent ways, and whether the estimates agree.

``estimates``: numbers from steps and blocks of steps; ``agreement``: the rule; ``disputes``: which assumption broke;
``summarize``: all of it for a cell.
"""
