-- How runs ended, how long they waited and took, and how many jobs were enqueued, by the minute.
create or replace view stepwell.stats as
select s.minute, s.task, s.queue, s.succeeded, s.failed, s.cancelled, s.handed_back, s.seconds, s.suspended,
  s.snoozed, s.advanced, s.restarted, s.undone, s.refused, s.enqueued, s.waits, s.runs
from stepwell.stat s;

comment on view stepwell.stats is
  'How runs ended, how long they had waited and took, and how many jobs were enqueued: by the minute, for a week.';
