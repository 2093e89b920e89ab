"""Figures: functions from a table or a summary to a ``Figure``.

::

    names                                                                         by the names that people use
    pictures page_pictures                                                which of them a run and a page have
    breakdown exposed overlap rank_map cause_map steps stages timeline sweep sweep_map            one question each
    comparison
    panels drawing vector                                            what they share, and a figure inside a page

There is a module for each picture, which is why there are more than in another room. Colours that mean something are in
``report/page/looks.py``.
"""
