"""What in this machine would stop, slow down or change a run, each finding with its fix.

Native libraries are only ever loaded in child processes, so that a crash is a finding and not the end of the doctor.
Nothing here imports JAX, NumPy or pandas in this process.
"""

from jaxtrade.doctor.finding import Finding, Status
from jaxtrade.doctor.report import diagnose, exit_code, main, to_json, to_text

__all__ = ["Finding", "Status", "diagnose", "exit_code", "main", "to_json", "to_text"]
