"""From traces and timings to tables: reads traces and run folders, needs neither torch nor a GPU.

::

    file -> reader/ -> Trace -> nesting, device_kinds -> collectives -> Contents -> TraceAnalysis      one rank
                                                                                        |
                     TraceSet <- explain <- ranks/ (skew), causes/ (why) <- RankTimeline                all ranks

Where to look (the layers of the contract in ``pyproject.toml``, bottom up):

* arithmetic of time: ``intervals``, ``coverage``, ``shares``, ``overlap``, ``enclosures``;
* what the file says: ``trace``, ``reader/``; what an event is: ``kinds/``, ``device_kinds``;
* who asked for it: ``nesting``, ``forwards``, ``modules``, ``correlate``, ``purposes``, ``owners``;
* collectives: ``collectives`` (the record), ``device_collectives``, ``gloo`` and ``gloo_match``, ``payload``;
* who stood still: ``main_lane``, ``gaps``, ``waits``, ``cpu_waits``;
* accounts of a window: ``lanes``, ``group_times``, ``purpose_times``, ``overlap_tax``, ``accounts``;
* one rank: ``device_time``, ``device_contents`` or ``cpu_contents``, ``contents``, ``trace_analysis``, ``timeline``,
  ``facts``;
* all ranks: ``ranks/``; why it is exposed: ``causes/``; both joined: ``explain``;
* many files: ``trace_file``, ``many``, ``garbage``, ``trace_set``, ``foreign``;
* rows: ``tables``, ``tabulate``, ``account_rows``, ``means``;
* runs: ``launch_tables``, ``cell_data``, ``run_data``, ``summarize_cell`` and what it asks (``worst_ranks``,
  ``cell_notes``, ...), ``summary``, ``run``.
"""
