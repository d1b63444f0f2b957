"""`hermes-plugins sync DIR`: notes and conversations of several machines through a shared folder.

Every machine appends what it added and removed to its own log in the folder (`log`), and reads the
logs of the others. What the logs say together does not depend on the order in which they are read
(`notes`, `sessions`), so all machines arrive at the same. `state` has what a home knows of the
folder; after a crash at any point the next run goes on.
"""

from hermes_builtin.sync.folder import SyncReport, sync_folder
from hermes_builtin.sync.log import SyncError

__all__ = ["SyncError", "SyncReport", "sync_folder"]
