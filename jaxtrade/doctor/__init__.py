"""Find what on this machine would stop, slow down or change a run. Each finding comes with a fix.

Native libraries are loaded in child processes only, so a crash becomes a finding and does not end
the doctor. This process imports neither JAX, NumPy nor pandas.
"""

from jaxtrade.doctor.finding import Finding, Status
from jaxtrade.doctor.report import diagnose, exit_code, main, to_json, to_text

__all__ = ["Finding", "Status", "diagnose", "exit_code", "main", "to_json", "to_text"]
