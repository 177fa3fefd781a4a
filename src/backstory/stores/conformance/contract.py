"""All parts of the contract in one class."""

from backstory.stores.conformance.appending import Appending
from backstory.stores.conformance.leasing import Leasing
from backstory.stores.conformance.naming import Naming
from backstory.stores.conformance.reading import Reading
from backstory.stores.conformance.rewriting import Rewriting
from backstory.stores.conformance.waiting import Waiting


class StoreContract(Appending, Reading, Naming, Leasing, Waiting, Rewriting):
    """Everything that `backstory.stores.base` promises and a test can see."""
