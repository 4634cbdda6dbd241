-- Set how many jobs of a queue run at once, over all workers: those that wait already, too. 0 lets none run. Null removes
-- the limit. It takes effect at once; running jobs go on, and count.
create or replace function stepwell.set_queue_limit(_queue text, _most integer) returns void
language plpgsql volatile security definer
as $$
begin
  perform stepwell.check_queue(_queue);
  if _most not between 0 and 1000000 then
    raise exception using errcode = 'SW002',
      message = format('stepwell: the limit of queue %s is %s: give 0 to 1000000, or null to remove it', _queue, _most);
  end if;
  if _most is null then
    update stepwell.queue_setting s set most = null, set_at = stepwell.now() where s.name = _queue;
  else
    insert into stepwell.queue_setting as s (name, most, set_at) values (_queue, _most, stepwell.now())
    on conflict (name) do update set most = excluded.most, set_at = excluded.set_at;
  end if;
  delete from stepwell.queue_setting s where s.name = _queue and s.most is null and s.spacing is null;
  perform stepwell.notify_queues(array[_queue]);
end
$$;
