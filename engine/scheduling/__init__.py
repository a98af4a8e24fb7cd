"""Who computes what, and whose page is which: requests + pages -> Plan. No torch, no clock."""
