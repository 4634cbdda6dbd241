-- Guards against hostile or unlucky callers, and corrections. Functions and views are replaced after this file.

-- Rights.

-- Sizes and names.

-- Events and signals.

-- Leases and outcomes.

-- Schedules.

-- Lives and attempts of a job.

-- Owners, and jobs whose arguments do not fit.

-- Counters.
