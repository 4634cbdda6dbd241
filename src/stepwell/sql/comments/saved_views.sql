comment on table stepwell.saved_view is 'Filters of the list of jobs that somebody has named. The dashboard shows them to all.';
comment on column stepwell.saved_view.name is 'The name.';
comment on column stepwell.saved_view.filters is
  'The filters and the order, by name, as they were typed: {"state": "failed", "since": "2h"}.';
comment on column stepwell.saved_view.saved_by is 'Who saved it.';
comment on column stepwell.saved_view.saved_at is 'When it was saved.';
