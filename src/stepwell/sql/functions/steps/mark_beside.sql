-- Mark the steps that failed beside the one at which a job fails, and their attempts: they are repeated together with
-- it. The caller has locked the jobs. _besides[k] is a JSON array of keys; null: none.
create or replace function stepwell.mark_beside(_ids uuid[], _epochs integer[], _besides text[]) returns void
language plpgsql volatile
as $$
declare
  _held record;
begin
  for _held in
    select u.id, array(select json_array_elements_text(u.beside::json)) as keys
    from unnest(_ids, _epochs, _besides) as u (id, epoch, beside)
    join stepwell.job j on j.id = u.id
    where u.beside <> '[]' and j.epoch = u.epoch and j.worker_id is not null
  loop
    update stepwell.step s set error = (s.error::jsonb || '{"anew": true}')::json
    where s.job_id = _held.id and s.error is not null
      and (s.key = any (_held.keys) or s.kind = 'retry' and regexp_replace(s.key, '~[0-9]+$', '') = any (_held.keys));
  end loop;
end
$$;
