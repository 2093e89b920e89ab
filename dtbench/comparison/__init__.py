"""Runs and traces against each other: what they did differently, then what it cost, by statistics over launches.

``reading`` says what each side tells, ``mechanism`` and ``environment`` what differs in what was done, ``statistics``
decides whether a number differs, ``comparison`` is the answer as one frozen value, ``gate`` what a CI job asks of it.
"""
