"""Exposed communication estimated again, without profiler: steps in arms that differ in nothing but communication."""
