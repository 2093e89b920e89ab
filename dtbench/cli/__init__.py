"""The command line: one module per verb, heavy imports inside the functions, and the only room that prints.

::

    main -> analyze baseline catalogue check compare coverage doctor export list_scenarios plot report run schema
            selftest tensorboard                                                                          verbs
            doctor_document doctor_torch torch_probe machine_checks                                       of `doctor`
            complete sweeps                                              what a shell completes, and `--sweep` says
            console progress page_file open_report                                             how all of them answer
            forks                                                                     processes that a catalogue forks

It has more modules than another room because a person has more verbs; each is found by the word that they type.
"""
