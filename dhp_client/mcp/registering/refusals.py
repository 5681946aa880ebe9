"""Why a configuration is left as it is."""

from dhp_client.exceptions import ClientError


class NotChanged(ClientError):
    """The file can't be changed without a risk to what else is in it: a person has to do it. The message says why."""
