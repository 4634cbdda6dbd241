-- Write the progress that running handlers report. The fence drops stale reports.
create or replace function stepwell.report_progress(_ids uuid[], _epochs integer[], _progress text[]) returns void
language sql volatile security definer
as $$
  select stepwell.check_sizes('progress', _progress);
  with said as (
    select u.id, u.epoch, u.progress from unnest(_ids, _epochs, _progress) as u (id, epoch, progress) order by u.id
  )
  update stepwell.job j set progress = s.progress::json
  from said s
  where j.id = any (_ids) and j.id = s.id and j.epoch = s.epoch and j.worker_id is not null
$$;
