"""The words and tables of an answer, one wording for all who show it.

::

    run_page trace_page comparison_page catalogue_page scenario_pages coverage_page remade_page torch_page   answers
    cell_page cell_rows run_tables sweep stages estimates checklist places                           parts of a run's
    bounds                                                                    part of a comparison's
    page looks                                                                    what a page is made of, its colours

There is a module for each question that `dtbench` answers, which is why there are more than in another room.
"""
